// Four threads count words in a map. How they share it is the first argument: `monitor` (synchronized), `lock`
// (ReentrantLock) or `parts` (ConcurrentHashMap, a lock for each part of the data); the second is seconds.
// usage: java Counters.java monitor 5
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantLock;

public class Counters {
    static final Map<Integer, Long> shared = new HashMap<>();
    static final ConcurrentHashMap<Integer, Long> parted = new ConcurrentHashMap<>();
    static final ReentrantLock lock = new ReentrantLock();

    static int mix(int x, int rounds) {
        for (int i = 0; i < rounds; i++) {
            x ^= x << 13;
            x ^= x >>> 17;
            x ^= x << 5;
        }
        return x;
    }

    static void count(Map<Integer, Long> map, int word) {
        map.merge(mix(word, 20000) & 1023, 1L, Long::sum);
    }

    public static void main(String[] args) throws InterruptedException {
        String how = args[0];
        long end = System.nanoTime() + (long) (Double.parseDouble(args[1]) * 1e9);
        AtomicLong done = new AtomicLong(), waited = new AtomicLong();
        Thread[] threads = new Thread[4];
        for (int t = 0; t < threads.length; t++) {
            int seed = t + 1;
            threads[t] = new Thread(() -> {
                int word = seed;
                long n = 0, waits = 0;
                while (System.nanoTime() < end) {
                    word = mix(word, 5000);
                    long before = System.nanoTime();
                    switch (how) {
                        case "monitor":
                            synchronized (shared) {
                                waits += System.nanoTime() - before;
                                count(shared, word);
                            }
                            break;
                        case "lock":
                            lock.lock();
                            waits += System.nanoTime() - before;
                            try {
                                count(shared, word);
                            } finally {
                                lock.unlock();
                            }
                            break;
                        case "parts":
                            parted.merge(mix(word, 20000) & 1023, 1L, Long::sum);
                            break;
                        default:
                            throw new IllegalArgumentException(how);
                    }
                    n++;
                }
                done.addAndGet(n);
                waited.addAndGet(waits);
            }, "counter-" + t);
            threads[t].start();
        }
        for (Thread thread : threads) thread.join();
        double seconds = Double.parseDouble(args[1]);
        System.out.printf("%s: %.0f words/s, threads waited %.1f s by their own clocks%n", how, done.get() / seconds, waited.get() / 1e9);
    }
}
