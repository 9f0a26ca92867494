// Two threads test messages by `instanceof` for two interfaces in turn. The class of the messages has many interfaces: HotSpot keeps the
// last answer of each class (secondary_super_cache), so that each test walks through the list and writes a new answer (JDK-8180450).
// `twin` asks by a virtual method.
import java.util.concurrent.atomic.LongAdder;
public class Supers {
    interface A1 {} interface A2 {} interface A3 {} interface A4 {} interface A5 {} interface A6 {} interface A7 {} interface A8 {}
    interface Keyed { int key(); }
    interface Timed { int time(); }
    static abstract class Message { abstract Keyed keyed(); abstract Timed timed(); int value; }
    static abstract class Full extends Message implements A1, A2, A3, A4, A5, A6, A7, A8, Keyed, Timed {
        public int key() { return value & 15; } public int time() { return value >> 4; }
        Keyed keyed() { return this; } Timed timed() { return this; }
    }
    static class Order extends Full {} static class Trade extends Full {} static class Quote extends Full {} static class Cancel extends Full {}
    static int route(Message m) {
        int at = 0;
        if (m instanceof Keyed) at += ((Keyed) m).key();
        if (m instanceof Timed) at += ((Timed) m).time();
        return at;
    }
    static int routeDirect(Message m) {
        int at = 0;
        Keyed k = m.keyed(); if (k != null) at += m.value & 15;
        Timed t = m.timed(); if (t != null) at += m.value >> 4;
        return at;
    }
    static int handle(Message m, boolean twin) { int x = twin ? routeDirect(m) : route(m); for (int i = 0; i < 8; i++) x = x * 31 + (x >>> 7); return x; }
    public static void main(String[] args) throws Exception {
        boolean twin = args.length > 1 && args[1].equals("twin");
        long end = System.nanoTime() + (long) (Double.parseDouble(args[0]) * 1e9);
        LongAdder total = new LongAdder();
        Thread[] threads = new Thread[2];
        for (int t = 0; t < 2; t++) {
            threads[t] = new Thread(() -> {
                Message[] all = new Message[1000];
                for (int i = 0; i < all.length; i++) { all[i] = switch (i * 7 % 4) { case 0 -> new Order(); case 1 -> new Trade(); case 2 -> new Quote(); default -> new Cancel(); }; all[i].value = i; }
                long n = 0; int sum = 0;
                while (System.nanoTime() < end) { for (Message m : all) sum += handle(m, twin); n += all.length; }
                total.add(n + (sum & 1));
            }, "router-" + t);
            threads[t].start();
        }
        for (Thread t : threads) t.join();
        System.out.printf("%.2f M messages/s%n", total.sum() / Double.parseDouble(args[0]) / 1e6);
    }
}
