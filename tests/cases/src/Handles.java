import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.HashMap;
import java.util.Map;

/** Rules are applied by method handles, each by invokeWithArguments; "twin" calls them as what they are. */
public class Handles {
    static int twice(int x) { return 2 * x; }

    static long sum;

    static void apply(Map<String, MethodHandle> rules, int i, boolean twin) throws Throwable {
        MethodHandle rule = rules.get("rule" + (i & 15));
        sum += twin ? twice(i) : (int) rule.invokeWithArguments(i);
    }

    public static void main(String[] args) throws Throwable {
        boolean twin = args.length > 1;
        Map<String, MethodHandle> rules = new HashMap<>();
        MethodType type = MethodType.methodType(int.class, int.class);
        for (int i = 0; i < 16; i++) rules.put("rule" + i, MethodHandles.lookup().findStatic(Handles.class, "twice", type));
        long end = System.nanoTime() + (long) (Double.parseDouble(args[0]) * 1e9);
        long calls = 0;
        while (System.nanoTime() < end) {
            for (int i = 0; i < 1000; i++, calls++) apply(rules, i, twin);
        }
        System.out.println(calls / Double.parseDouble(args[0]) + " calls a second");
    }
}
