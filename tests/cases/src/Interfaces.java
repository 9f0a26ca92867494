import java.util.concurrent.atomic.LongAdder;

public class Interfaces {
    interface Sized { int size(); }
    interface Named { int name(); }
    abstract static class Message { abstract int size(); abstract int name(); }

    static final class Order extends Message implements Sized, Named {
        public int size() { return 12; }
        public int name() { return 1; }
    }

    static final class Quote extends Message implements Sized, Named {
        public int size() { return 24; }
        public int name() { return 2; }
    }

    static final class Trade extends Message implements Sized, Named {
        public int size() { return 40; }
        public int name() { return 3; }
    }

    static final LongAdder passed = new LongAdder();
    static boolean concrete;

    static int measure(Object o) {
        return o instanceof Sized ? ((Sized) o).size() : 0;
    }

    static int label(Object o) {
        return o instanceof Named ? ((Named) o).name() : 0;
    }

    static int measureMessage(Object o) {
        return o instanceof Message ? ((Message) o).size() : 0;
    }

    static int labelMessage(Object o) {
        return o instanceof Message ? ((Message) o).name() : 0;
    }

    static long pass(Object[] batch) {
        long sum = 0;
        for (Object o : batch) sum += concrete ? measureMessage(o) * labelMessage(o) : measure(o) * label(o);
        return sum;
    }

    static void stage(Object[] batch, long until) {
        long sum = 0;
        while (System.nanoTime() < until) {
            for (int i = 0; i < 20; i++) sum += pass(batch);
            passed.add(20L * batch.length);
        }
        if (sum == 42) System.out.println(sum);
    }

    static Object[] batch(int n) {
        Object[] all = new Object[n];
        for (int i = 0; i < n; i++) all[i] = i % 3 == 0 ? new Order() : i % 3 == 1 ? new Quote() : new Trade();
        return all;
    }

    public static void main(String[] args) throws Exception {
        concrete = args.length > 1;
        long until = System.nanoTime() + (long) (Double.parseDouble(args[0]) * 1e9);
        Thread[] threads = new Thread[Runtime.getRuntime().availableProcessors()];
        for (int i = 0; i < threads.length; i++) {
            Object[] batch = batch(999);
            (threads[i] = new Thread(() -> stage(batch, until), "stage-" + i)).start();
        }
        for (Thread t : threads) t.join();
        System.out.println(passed.sum() + " messages");
    }
}
