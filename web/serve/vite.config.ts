import { defineConfig } from "vite";

// Names that do not change: the server has them in its program.
export default defineConfig({
  base: "./",
  build: {
    outDir: "dist",
    assetsInlineLimit: 0,
    modulePreload: false,
    // The first that know light-dark(). What stands in for it in older ones follows the system alone, not the button.
    cssTarget: ["chrome123", "firefox120", "safari17.5"],
    rollupOptions: {
      output: { entryFileNames: "page.js", chunkFileNames: "[name].js", assetFileNames: "[name][extname]" },
    },
  },
});
