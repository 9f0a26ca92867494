import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.locks.ReentrantLock;

/** Three threads and one lock; writes how long they waited for it into a file, by the JVM's own account. */
public class Monitor {
    static final Object monitor = new Object();
    static final ReentrantLock lock = new ReentrantLock();

    static void hold(int ms) {
        long end = System.nanoTime() + ms * 1000000L;
        while (System.nanoTime() < end) { }
    }

    public static void main(String[] args) throws Exception {
        var bean = ManagementFactory.getThreadMXBean();
        bean.setThreadContentionMonitoringEnabled(true);
        var threads = new Thread[3];
        var waited = new long[3];
        for (int i = 0; i < 3; i++) {
            int n = i;
            threads[i] = new Thread(() -> {
                long end = System.nanoTime() + 1500000000L;
                while (System.nanoTime() < end) {
                    if (args[0].equals("monitor")) {
                        synchronized (monitor) { hold(20); }
                    } else if (args[0].equals("lock")) {
                        lock.lock();
                        try { hold(20); } finally { lock.unlock(); }
                    }
                    // Lets the others have it.
                    try { Thread.sleep(1); } catch (InterruptedException e) { }
                }
                var info = bean.getThreadInfo(Thread.currentThread().getId());
                waited[n] = args[0].equals("monitor") ? info.getBlockedTime() : info.getWaitedTime();
            });
            threads[i].start();
        }
        for (var thread : threads) thread.join();
        Files.writeString(Path.of(args[1]), waited[0] + waited[1] + waited[2] + "\n");
    }
}
