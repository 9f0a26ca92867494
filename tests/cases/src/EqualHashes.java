// The hash value of a cell is the sum of its coordinates, which most cells share. "fixed": one that spreads.
import java.util.HashMap;
import java.util.Map;

public class EqualHashes {
    static boolean fixed;

    static final class Cell {
        final int x, y;

        Cell(int x, int y) {
            this.x = x;
            this.y = y;
        }

        public int hashCode() {
            return fixed ? x * 31337 + y : x + y;
        }

        public boolean equals(Object o) {
            return o instanceof Cell c && c.x == x && c.y == y;
        }
    }

    static long visit(Map<Cell, Integer> seen, int side) {
        long visits = 0;
        for (int x = 0; x < side; x++)
            for (int y = 0; y < side; y++)
                visits += seen.merge(new Cell(x, y), 1, Integer::sum);
        return visits;
    }

    public static void main(String[] a) {
        fixed = a.length > 1;
        long end = System.nanoTime() + (long) (1e9 * Double.parseDouble(a[0])), rounds = 0, visits = 0;
        Map<Cell, Integer> seen = new HashMap<>();
        for (; System.nanoTime() < end; rounds++) visits += visit(seen, 100);
        System.out.println(rounds + " rounds, " + visits + " visits");
    }
}
