import java.util.stream.*;
public class Streams { public static void main(String[] a) { long end = System.nanoTime() + Long.parseLong(a[0]) * 1_000_000_000L, s = 0; while (System.nanoTime() < end) s += IntStream.range(0, 2_000_000).parallel().mapToLong(i -> (long) i * i % 7).sum(); System.out.println(s); } }
