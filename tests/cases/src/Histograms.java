// Healthy: a thread for each CPU fills a histogram of its own from random numbers of its own and merges it once a second.
import java.util.*;
public class Histograms {
    public static void main(String[] args) throws Exception {
        long seconds = Long.parseLong(args[0]), end = System.nanoTime() + seconds * 1_000_000_000L;
        int threads = Runtime.getRuntime().availableProcessors();
        long[] all = new long[1024];
        Thread[] team = new Thread[threads];
        for (int t = 0; t < threads; t++) {
            int id = t;
            (team[t] = new Thread(() -> {
                SplittableRandom random = new SplittableRandom(id);
                while (System.nanoTime() < end) {
                    long[] own = new long[1024];
                    for (int i = 0; i < 20_000_000; i++) own[(int) (Math.sqrt(random.nextDouble()) * 1023)]++;
                    synchronized (all) { for (int i = 0; i < 1024; i++) all[i] += own[i]; }
                }
            }, "histogram-" + t)).start();
        }
        for (Thread t : team) t.join();
        System.out.println(Arrays.stream(all).sum() / seconds / 1_000_000 + " M samples/s");
    }
}
