import java.util.concurrent.locks.*;
public class FairLock {
    static final ReentrantLock turn = new ReentrantLock(true);
    static long total;
    static void book(int n) {
        turn.lock();
        try { total += n; } finally { turn.unlock(); }
    }
    public static void main(String[] a) throws Exception {
        long end = System.nanoTime() + Long.parseLong(a[0]) * 1_000_000_000L;
        Thread[] t = new Thread[8];
        for (int i = 0; i < t.length; i++) {
            int k = i;
            t[i] = new Thread(() -> { while (System.nanoTime() < end) book(k); }, "booker-" + i);
            t[i].start();
        }
        for (Thread x : t) x.join();
        System.out.println(total);
    }
}
