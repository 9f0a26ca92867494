import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntUnaryOperator;

/** Functions whose shares of the time on CPU are given, called in all the ways that Java has; and a sleep. */
public class Functions {
    static final double UNIT = 0.1e9;
    static final ThreadMXBean clock = ManagementFactory.getThreadMXBean();
    static volatile int sink;

    static int mix(int x) {
        x ^= x << 13;
        x ^= x >>> 17;
        return x ^ x << 5;
    }

    static void burn(double units) {
        long end = clock.getCurrentThreadCpuTime() + (long) (units * UNIT);
        int x = 1;
        while (clock.getCurrentThreadCpuTime() < end) {
            for (int i = 0; i < 5000; i++) x = mix(x + i);
        }
        sink = x;
    }

    static void plain() {
        burn(2);
    }

    static void deep(int left) {
        if (left > 0) deep(left - 1);
        else burn(1);
    }

    interface Shape {
        void draw();
    }

    static class Round implements Shape {
        public void draw() {
            burn(1);
        }
    }

    static void reflected() {
        burn(1);
    }

    static int key(int value) {
        burn(0.25);
        return value;
    }

    static void thread() {
        burn(1);
    }

    static void settle() {
        burn(2);
    }

    static void nap() {
        LockSupport.parkNanos(300_000_000);
    }

    // Small enough to be put into its callers, and called often enough.
    static int small(int x) {
        int sum = 0;
        for (int i = 0; i < 20; i++) sum += mix(x + i);
        return sum;
    }

    static void inlines() {
        long end = clock.getCurrentThreadCpuTime() + (long) (2 * UNIT);
        int x = 1;
        while (clock.getCurrentThreadCpuTime() < end) {
            for (int i = 0; i < 500; i++) x = small(x);
        }
        sink = x;
    }

    public static void main(String[] args) throws Exception {
        settle();
        plain();
        deep(100);
        Shape shape = new Round();
        shape.draw();
        Functions.class.getDeclaredMethod("reflected").invoke(null);
        List<Integer> keys = new ArrayList<>(List.of(1, 2, 3, 4));
        keys.stream().map(Functions::key).forEach(k -> sink += k);
        IntUnaryOperator lambda = units -> {
            burn(units);
            return units;
        };
        lambda.applyAsInt(1);
        inlines();
        Thread[] threads = {new Thread(Functions::thread), new Thread(Functions::thread)};
        for (Thread thread : threads) thread.start();
        for (Thread thread : threads) thread.join();
        nap();
    }
}
