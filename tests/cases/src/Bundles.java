// Templates lie in an archive, which is opened for each of them.
import java.io.*;
import java.nio.file.*;
import java.util.zip.*;
class Bundles {
    static ZipFile open;
    static String template(File archive, String name, boolean good) throws IOException {
        ZipFile z = good ? (open == null ? open = new ZipFile(archive) : open) : new ZipFile(archive);
        try (InputStream in = z.getInputStream(z.getEntry(name))) { return new String(in.readAllBytes()); }
        finally { if (!good) z.close(); }
    }
    static int render(File archive, int i, boolean good) throws IOException {
        return template(archive, "templates/page" + i % 4000 + ".html", good).replace("$name", "user" + i).length();
    }
    public static void main(String[] a) throws Exception {
        File f = File.createTempFile("bundles", ".zip"); f.deleteOnExit();
        try (ZipOutputStream z = new ZipOutputStream(new FileOutputStream(f))) {
            for (int i = 0; i < 4000; i++) { z.putNextEntry(new ZipEntry("templates/page" + i + ".html")); z.write(("<h1>Hello $name, page " + i + "</h1>\n").repeat(20).getBytes()); }
        }
        boolean good = a.length > 1 && a[1].equals("twin");
        long end = System.nanoTime() + (long) (1e9 * Double.parseDouble(a[0]));
        int n = 0;
        while (System.nanoTime() < end) render(f, n++, good);
        System.out.println(n + " pages");
    }
}
