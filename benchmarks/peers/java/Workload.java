import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.IntBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Locale;

/**
 * What both peers are given: elements and the constants of the queries, as little-endian int32 files.
 *
 * <p>Everything is in memory before the clock runs. Two threads take half of the elements each. The
 * first half of the work is not measured: the virtual machine compiles meanwhile.
 */
final class Workload {
    static final String[] NAMES = {"a", "b", "c", "d", "e"};

    /** Element by element. */
    final int[] elements;

    /** Query by query: a constant of a, or five pairs of lowest and highest value. */
    final int[] constants;

    final boolean areRanges;
    final int columns;

    Workload(String kind, String elementFile, String constantFile) throws IOException {
        areRanges = kind.equals("ranges");
        columns = areRanges ? NAMES.length : 1;
        elements = read(elementFile);
        constants = read(constantFile);
    }

    int rows() {
        return elements.length / columns;
    }

    int queries() {
        return constants.length / (areRanges ? 2 * NAMES.length : 1);
    }

    private static int[] read(String file) throws IOException {
        byte[] bytes = Files.readAllBytes(Path.of(file));
        IntBuffer found = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asIntBuffer();
        int[] numbers = new int[found.remaining()];
        found.get(numbers);
        return numbers;
    }

    /** What takes the elements from `first` up to `end` in thread number `thread`. */
    interface Sender {
        void send(int first, int end, int thread) throws Exception;
    }

    /** Seconds by the clock, and seconds of the processor that the whole process took. */
    record Took(double seconds, double processor) {}

    /** What two threads take for the elements from `first` up to `end`. */
    static Took inTwoThreads(int first, int end, Sender sender) throws Exception {
        Thread[] threads = new Thread[2];
        Exception[] failed = new Exception[1];
        OperatingSystemMXBean system =
                (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long begun = System.nanoTime();
        long processor = system.getProcessCpuTime();
        for (int number = 0; number < 2; number++) {
            int thread = number;
            int low = first + (end - first) / 2 * thread;
            int high = thread == 0 ? first + (end - first) / 2 : end;
            threads[number] = new Thread(() -> {
                try {
                    sender.send(low, high, thread);
                } catch (Exception error) {
                    failed[0] = error;
                }
            });
            threads[number].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        if (failed[0] != null) {
            throw failed[0];
        }
        double seconds = (System.nanoTime() - begun) / 1e9;
        return new Took(seconds, (system.getProcessCpuTime() - processor) / 1e9);
    }

    /** Numbers of elements that grow as they are found. */
    static final class Numbers {
        private int[] held = new int[4];
        private int count;

        void add(int number) {
            if (count == held.length) {
                held = Arrays.copyOf(held, 2 * count);
            }
            held[count++] = number;
        }

        int count() {
            return count;
        }

        long sum() {
            long sum = 0;
            for (int i = 0; i < count; i++) {
                sum += held[i];
            }
            return sum;
        }
    }

    /** Says what was found: one line, which is JSON. */
    static void report(double registered, Took took, int rows, long matches, long sum) {
        System.out.printf(
                Locale.ROOT,
                "{\"registered\": %f, \"seconds\": %f, \"processor\": %f, \"rows\": %d, \"matches\": %d, \"sum\": %d}%n",
                registered, took.seconds(), took.processor(), rows, matches, sum);
    }
}
