// A monitor asks for the stacks of all 400 threads again and again, and all threads stand still meanwhile. Twin "fixed": it does not.
import java.util.concurrent.atomic.AtomicLong;
public class Dumps {
    static final AtomicLong done = new AtomicLong();
    static volatile boolean stop;
    static long work(long x) {
        for (int i = 0; i < 20000; i++) x = x * 6364136223846793005L + 1442695040888963407L;
        return x;
    }
    static void serveRequests() {
        for (long x = 1; !stop; done.incrementAndGet()) x = work(x);
    }
    static long monitorThreads() {
        long n = 0;
        while (!stop) n += Thread.getAllStackTraces().size();
        return n;
    }
    static long park(int depth) throws InterruptedException {
        if (depth > 0) return park(depth - 1) + 1;
        Thread.sleep(1_000_000);
        return 1;
    }
    static void start(Runnable work, String name) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        thread.start();
    }
    public static void main(String[] args) throws Exception {
        for (int i = 0; i < 400; i++)
            start(() -> { try { park(60); } catch (InterruptedException e) { } }, "connection-" + i);
        for (int i = 0; i < 2; i++) start(Dumps::serveRequests, "server-" + i);
        if (args.length == 1) start(Dumps::monitorThreads, "monitor");
        Thread.sleep(Long.parseLong(args[0]) * 1000);
        stop = true;
        System.out.println(done.get() + " requests");
    }
}
