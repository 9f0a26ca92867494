// A planner asks a map of costs by expression trees: hashCode of a tree hashes all of it again at each look-up, since nothing keeps it
// (smithy4s #1654, IntelliJ #296). `twin` keeps the hash in the node.
import java.util.*;
public class Hashes {
    static boolean twin;
    static final class Node {
        final String op; final List<Node> inputs; private int hash;
        Node(String op, List<Node> inputs) { this.op = op; this.inputs = inputs; }
        @Override public int hashCode() {
            if (twin && hash != 0) return hash;
            int h = op.hashCode();
            for (Node in : inputs) h = 31 * h + in.hashCode();
            return hash = h;
        }
        @Override public boolean equals(Object o) { return this == o || o instanceof Node n && n.hashCode() == hashCode() && op.equals(n.op) && inputs.equals(n.inputs); }
    }
    static Node tree(int depth, int seed, List<Node> all) {
        List<Node> in = depth == 0 ? List.of() : List.of(tree(depth - 1, seed * 2, all), tree(depth - 1, seed * 2 + 1, all));
        Node n = new Node("op" + seed, in); all.add(n); return n;
    }
    static double costOf(Map<Node, Double> costs, Node n) { Double c = costs.get(n); return c == null ? 1 : c; }
    static double plan(Map<Node, Double> costs, List<Node> all) {
        double best = 0;
        for (Node n : all) { double c = costOf(costs, n); for (Node in : n.inputs) c += costOf(costs, in); best = Math.max(best, c); }
        return best;
    }
    public static void main(String[] args) throws Exception {
        twin = args.length > 1 && args[1].equals("twin");
        double secs = Double.parseDouble(args[0]); long end = System.nanoTime() + (long) (secs * 1e9);
        long[] done = new long[2]; Thread[] ts = new Thread[2];
        for (int t = 0; t < 2; t++) { int me = t; ts[t] = new Thread(() -> {
            List<Node> all = new ArrayList<>(); tree(9, 1, all);
            Map<Node, Double> costs = new HashMap<>(); for (Node n : all) costs.put(n, (double) n.op.length());
            double s = 0; while (System.nanoTime() < end) { s += plan(costs, all); done[me]++; }
            if (s < 0) System.out.println(s);
        }, "planner-" + t); ts[t].start(); }
        for (Thread t : ts) t.join();
        System.out.printf("%.0f plans/s%n", (done[0] + done[1]) / secs);
    }
}
