// A DocumentBuilderFactory (and with it a search of the class path) for each order. "fixed": one.
import java.io.*;
import javax.xml.parsers.*;
public class Orders {
    static final byte[] ORDER = "<order id='7'><item sku='a1' n='2'/><item sku='b2' n='1'/></order>".getBytes();
    static DocumentBuilder shared;
    static int parseOrder(boolean fixed) throws Exception {
        DocumentBuilder builder = fixed ? shared : DocumentBuilderFactory.newInstance().newDocumentBuilder();
        return builder.parse(new ByteArrayInputStream(ORDER)).getDocumentElement().getChildNodes().getLength();
    }
    public static void main(String[] args) throws Exception {
        long seconds = Long.parseLong(args[0]), end = System.nanoTime() + seconds * 1_000_000_000L, n = 0, sum = 0;
        shared = DocumentBuilderFactory.newInstance().newDocumentBuilder();
        while (System.nanoTime() < end) { sum += parseOrder(args.length > 1); n++; }
        System.out.println(n / seconds + " orders/s " + sum);
    }
}
