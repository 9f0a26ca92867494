import { defineConfig } from "vitest/config";

// Times are written in the browser's zone: one that differs from UTC by no whole hours.
process.env["TZ"] = "Asia/Kathmandu";

export default defineConfig({ test: { include: ["tests/*.test.ts"], environment: "happy-dom" } });
