import java.util.concurrent.*;
public class QueueSize {
    static final ConcurrentLinkedQueue<Integer> queue = new ConcurrentLinkedQueue<>();
    static int admit(int n) {
        if (queue.size() < 20_000) queue.add(n); else queue.poll();
        return queue.size();
    }
    public static void main(String[] a) throws Exception {
        long end = System.nanoTime() + Long.parseLong(a[0]) * 1_000_000_000L;
        for (int i = 0; i < 20_000; i++) queue.add(i);
        long all = 0;
        while (System.nanoTime() < end) all += admit(1);
        System.out.println(all);
    }
}
