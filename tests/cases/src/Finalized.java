// Each handle has a finalizer: it is registered, found by a collection, queued and run. Twin "fixed": none has.
public class Finalized {
    static long closed, sum;
    static class Handle { long id = 1; }
    static class Closing extends Handle {
        @Override protected void finalize() { closed++; }
    }
    static Handle open(boolean fixed) {
        return fixed ? new Handle() : new Closing();
    }
    public static void main(String[] args) {
        long end = System.nanoTime() + Long.parseLong(args[0]) * 1_000_000_000L, n = 0;
        for (; System.nanoTime() < end; n += 100)
            for (int i = 0; i < 100; i++) {
                Handle handle = open(args.length > 1);
                sum += handle.id + System.identityHashCode(handle) % 3;
            }
        System.out.println(n + " handles");
    }
}
