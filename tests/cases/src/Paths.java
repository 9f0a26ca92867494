// Healthy: a thread for each CPU follows random paths with a generator of its own.
import java.util.*;
import java.util.concurrent.*;
public class Paths {
    static long follow(long end) {
        ThreadLocalRandom random = ThreadLocalRandom.current();
        double sum = 0;
        long n = 0;
        for (; System.nanoTime() < end; n += 1000)
            for (int i = 0; i < 1000; i++) {
                double price = 100;
                for (int day = 0; day < 50; day++) price *= 1 + 0.01 * (random.nextDouble() - 0.5);
                sum += price;
            }
        return sum > 0 ? n : 0;
    }
    public static void main(String[] args) throws Exception {
        long end = System.nanoTime() + Long.parseLong(args[0]) * 1_000_000_000L, all = 0;
        int threads = Runtime.getRuntime().availableProcessors();
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        List<Future<Long>> parts = new ArrayList<>();
        for (int i = 0; i < threads; i++) parts.add(pool.submit(() -> follow(end)));
        for (Future<Long> part : parts) all += part.get();
        pool.shutdown();
        System.out.println(all + " paths");
    }
}
