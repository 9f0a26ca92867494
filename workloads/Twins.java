import java.io.FileOutputStream;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;

/** A synchronized map that is only read, and its repaired twin, a ConcurrentHashMap: Twins [--repaired] THREADS SECONDS. */
public class Twins {
    static volatile boolean stop;
    static long compute(long x, int n) {
        for (int i = 0; i < n; i++) x = x * 6364136223846793005L + 1442695040888963407L;
        return x;
    }
    public static void main(String[] a) throws Exception {
        int at = 0;
        boolean repaired = a[0].equals("--repaired");
        if (repaired) at++;
        int n = Integer.parseInt(a[at]);
        double seconds = Double.parseDouble(a[at + 1]);
        Map<Long, Long> map = repaired ? new ConcurrentHashMap<>() : Collections.synchronizedMap(new HashMap<>());
        for (long i = 0; i < 10000; i++) map.put(i, i);
        LongAdder sum = new LongAdder();
        Thread[] t = new Thread[n];
        long begin = System.nanoTime();
        for (int i = 0; i < n; i++) {
            long first = i;
            t[i] = new Thread(() -> {
                try (FileOutputStream out = new FileOutputStream("/dev/null")) {
                    long x = first;
                    while (!stop) {
                        for (int k = 0; k < 10; k++) {
                            x += map.get((x >>> 20) % 10000 & 8191);
                            x = compute(x, 200);
                        }
                        out.write(1);
                        sum.increment();
                    }
                } catch (Exception e) { throw new RuntimeException(e); }
            });
            t[i].start();
        }
        Thread.sleep((long) (seconds * 1000));
        stop = true;
        for (Thread x : t) x.join();
        System.out.printf("Twins: %.0f ops/s%n", sum.sum() / ((System.nanoTime() - begin) / 1e9));
    }
}
