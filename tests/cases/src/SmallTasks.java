import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.RecursiveTask;

/** Fibonacci's numbers by the fork/join pool, a task for each call; "twin" computes those below 20 in a task, and larger
 * ones with them, so that the pool has work for long. */
public class SmallTasks {
    static boolean twin;

    static class Fibonacci extends RecursiveTask<Long> {
        final int n;

        Fibonacci(int n) { this.n = n; }

        static long plain(int n) { return n < 2 ? n : plain(n - 1) + plain(n - 2); }

        @Override
        protected Long compute() {
            if (n < (twin ? 20 : 2)) return plain(n);
            Fibonacci other = new Fibonacci(n - 1);
            other.fork();
            return new Fibonacci(n - 2).compute() + other.join();
        }
    }

    public static void main(String[] args) {
        twin = args.length > 1;
        long end = System.nanoTime() + (long) (Double.parseDouble(args[0]) * 1e9);
        long sums = 0, sum = 0;
        for (; System.nanoTime() < end; sums++) sum += ForkJoinPool.commonPool().invoke(new Fibonacci(twin ? 32 : 25));
        // A larger one is 29 of the others.
        System.out.println(sums * (twin ? 29 : 1) / Double.parseDouble(args[0]) + " sums a second " + (sum & 1));
    }
}
