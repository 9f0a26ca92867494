import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.TreeSet;

/** A list of scores is sorted again after each score that is added. twin: a TreeSet. */
public class Ranking {
    record Score(long points, long player) implements Comparable<Score> {
        public int compareTo(Score other) {
            int c = Long.compare(other.points, points);
            return c != 0 ? c : Long.compare(player, other.player);
        }
    }

    static final List<Score> scores = new ArrayList<>();
    static final TreeSet<Score> ordered = new TreeSet<>();

    static void post(Score score) {
        scores.add(score);
        Collections.sort(scores);
        if (scores.size() > 2000) scores.remove(scores.size() - 1);
    }

    static void postInOrder(Score score) {
        ordered.add(score);
        if (ordered.size() > 2000) ordered.pollLast();
    }

    static long best(boolean fixed) {
        long sum = 0;
        int n = 0;
        for (Score s : fixed ? ordered : scores) {
            sum += s.points;
            if (++n == 10) break;
        }
        return sum;
    }

    public static void main(String[] args) {
        double seconds = args.length > 0 ? Double.parseDouble(args[0]) : 3;
        boolean fixed = args.length > 1 && args[1].equals("twin");
        long end = System.nanoTime() + (long) (seconds * 1e9);
        long posted = 0, x = 1, sum = 0;
        while (System.nanoTime() < end) {
            x = x * 6364136223846793005L + 1442695040888963407L;
            Score score = new Score(x >>> 40, posted);
            if (fixed) postInOrder(score); else post(score);
            sum += best(fixed);
            posted++;
        }
        System.out.printf("%.0f scores/s (%d)%n", posted / seconds, sum % 10);
    }
}
