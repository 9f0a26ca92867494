// Looks a getter up by its name for each object. Twin "fixed": once.
import java.lang.reflect.Method;
public class Members {
    public static class Order {
        private final int id;
        public Order(int id) { this.id = id; }
        public long getTotal() { return id * 3L; }
        public int getNumber() { return id; }
        public String getName() { return "order"; }
        public int getItems() { return 1; }
        public int getState() { return 2; }
    }
    static Method kept;
    static long readField(Object order, String name) throws Exception {
        Method getter = kept != null ? kept : order.getClass().getMethod("get" + name);
        return ((Number) getter.invoke(order)).longValue();
    }
    static long sumOrders(Order[] orders) throws Exception {
        long sum = 0;
        for (Order order : orders) sum += readField(order, "Total");
        return sum;
    }
    public static void main(String[] args) throws Exception {
        if (args.length > 1) kept = Order.class.getMethod("getTotal");
        Order[] orders = new Order[1000];
        for (int i = 0; i < 1000; i++) orders[i] = new Order(i);
        long end = System.nanoTime() + Long.parseLong(args[0]) * 1_000_000_000L, n = 0, sum = 0;
        for (; System.nanoTime() < end; n += 1000) sum += sumOrders(orders);
        System.out.println(n + " reads, " + sum);
    }
}
