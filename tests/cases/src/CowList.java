import java.util.concurrent.*;
public class CowList {
    static void subscribe(CopyOnWriteArrayList<Integer> list, int n) { list.add(n); }
    public static void main(String[] a) throws Exception {
        long end = System.nanoTime() + Long.parseLong(a[0]) * 1_000_000_000L;
        long all = 0;
        while (System.nanoTime() < end) {
            CopyOnWriteArrayList<Integer> list = new CopyOnWriteArrayList<>();
            for (int i = 0; i < 40_000 && System.nanoTime() < end; i++) subscribe(list, i);
            all += list.size();
        }
        System.out.println(all);
    }
}
