import java.io.InputStream;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongUnaryOperator;

public class Plugins {
    public static class Discount implements LongUnaryOperator {
        public long applyAsLong(long price) { return price * 93 / 100; }
    }

    static class RuleLoader extends ClassLoader {
        final byte[] code;

        RuleLoader(byte[] code) { super(Plugins.class.getClassLoader()); this.code = code; }

        Class<?> rule(String name) { return defineClass(name, code, 0, code.length); }
    }

    static final AtomicLong priced = new AtomicLong();
    static final ConcurrentHashMap<String, LongUnaryOperator> known = new ConcurrentHashMap<>();
    static byte[] code;
    static boolean keep;

    static LongUnaryOperator load(String name) {
        try {
            return (LongUnaryOperator) new RuleLoader(code).rule(name).getDeclaredConstructor().newInstance();
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    static LongUnaryOperator ruleFor(String name) {
        return keep ? known.computeIfAbsent(name, Plugins::load) : load(name);
    }

    static long price(long basket) {
        LongUnaryOperator rule = ruleFor("Plugins$Discount");
        long sum = 0;
        for (int i = 0; i < 200; i++) sum += rule.applyAsLong(basket + i * 7);
        return sum;
    }

    static void serve(long until) {
        long sum = 0;
        for (long n = 0; System.nanoTime() < until; n++) {
            sum += price(n);
            priced.incrementAndGet();
        }
        if (sum == 42) System.out.println(sum);
    }

    public static void main(String[] args) throws Exception {
        keep = args.length > 1;
        try (InputStream in = Plugins.class.getResourceAsStream("Plugins$Discount.class")) {
            code = in.readAllBytes();
        }
        long until = System.nanoTime() + (long) (Double.parseDouble(args[0]) * 1e9);
        Thread[] threads = new Thread[Runtime.getRuntime().availableProcessors()];
        for (int i = 0; i < threads.length; i++) (threads[i] = new Thread(() -> serve(until), "pricing-" + i)).start();
        for (Thread t : threads) t.join();
        System.out.println(priced + " baskets");
    }
}
