// Direct buffers are made for each message and left to the collector; at -XX:MaxDirectMemorySize the JDK calls System.gc() for room
// (java.nio.Bits.reserveMemory; HADOOP, Cassandra, Netty reports). `twin` keeps one buffer.
import java.nio.ByteBuffer;
import java.util.*;
public class Direct {
    static List<byte[]> kept = new ArrayList<>();
    static ByteBuffer own;
    static long encode(boolean twin, byte[] message) {
        ByteBuffer b = twin ? own : ByteBuffer.allocateDirect(1 << 20);
        b.clear();
        for (int i = 0; i < 64; i++) b.put(message);
        b.flip();
        long sum = 0;
        while (b.remaining() >= 8) sum += b.getLong();
        return sum;
    }
    public static void main(String[] args) {
        double seconds = Double.parseDouble(args[0]);
        boolean twin = args.length > 1;
        own = ByteBuffer.allocateDirect(1 << 20);
        for (int i = 0; i < 400_000; i++) kept.add(new byte[100]);
        long end = System.nanoTime() + (long) (seconds * 1e9), n = 0, sum = 0;
        byte[] message = new byte[4096];
        while (System.nanoTime() < end) { sum += encode(twin, message); n++; }
        System.out.println(n / seconds + " messages/s " + sum);
    }
}
