public class Formats {
    static String line(int id, double amount) { return String.format("%08d %10.2f %s", id, amount, "EUR"); }
    public static void main(String[] a) throws Exception {
        long end = System.nanoTime() + Long.parseLong(a[0]) * 1_000_000_000L;
        long all = 0;
        for (int i = 0; System.nanoTime() < end; i++) all += line(i, i * 0.37).length();
        System.out.println(all);
    }
}
