// Maps synchronized|concurrent THREADS SECONDS: threads that look numbers up in one map of 100,000, and put one in 16 times.
// Tells requests a second.
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.LongAdder;

public class Maps {
    static final int NUMBERS = 100_000;
    static volatile boolean over;

    public static void main(String[] args) throws Exception {
        Map<Integer, Integer> map =
                args[0].equals("synchronized") ? Collections.synchronizedMap(new HashMap<>()) : new ConcurrentHashMap<>();
        for (int i = 0; i < NUMBERS; i++) map.put(i, i);
        Thread[] threads = new Thread[Integer.parseInt(args[1])];
        double seconds = Double.parseDouble(args[2]);
        LongAdder requests = new LongAdder();
        for (int t = 0; t < threads.length; t++) {
            int seed = 7919 * (t + 1);
            threads[t] = new Thread(() -> requests.add(work(map, seed)));
            threads[t].start();
        }
        Thread.sleep((long) (1000 * seconds));
        over = true;
        for (Thread thread : threads) thread.join();
        System.out.printf("%.0f requests/s%n", requests.sum() / seconds);
    }

    static long work(Map<Integer, Integer> map, int random) {
        long n = 0;
        for (; !over; n++) {
            random = random * 1103515245 + 12345;
            int key = (random >>> 8) % NUMBERS;
            if (random >>> 28 == 0) map.put(key, random);
            else map.get(key);
        }
        return n;
    }
}
