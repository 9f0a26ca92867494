// Prices baskets; run with -Xint (left over from a debugging session) it is interpreted.
import java.util.*;
public class Interpreted {
    static double price(long seed) {
        double total = 0;
        for (int i = 0; i < 200; i++) {
            seed = seed * 6364136223846793005L + 1442695040888963407L;
            double item = (seed >>> 40) / 100.0;
            total += item > 5000 ? item * 0.9 : item * 1.1;
        }
        return total;
    }
    public static void main(String[] args) throws Exception {
        long end = System.nanoTime() + Long.parseLong(args[0]) * 1_000_000_000L;
        Thread[] threads = new Thread[2];
        long[] done = new long[64];
        for (int t = 0; t < 2; t++) {
            int id = t;
            threads[t] = new Thread(() -> {
                long n = 0; double sum = 0;
                while (System.nanoTime() < end) { for (int i = 0; i < 20; i++) sum += price(n++ * 31 + id); }
                done[id * 32] = n + (sum == 1 ? 1 : 0);
            }, "pricer-" + t);
            threads[t].start();
        }
        for (Thread t : threads) t.join();
        System.out.println((done[0] + done[32]) / Long.parseLong(args[0]) + " baskets/s");
    }
}
