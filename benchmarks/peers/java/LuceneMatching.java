import java.util.ArrayList;
import java.util.List;
import org.apache.lucene.analysis.core.KeywordAnalyzer;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.IntPoint;
import org.apache.lucene.document.StringField;
import org.apache.lucene.index.Term;
import org.apache.lucene.monitor.MatchingQueries;
import org.apache.lucene.monitor.Monitor;
import org.apache.lucene.monitor.MonitorConfiguration;
import org.apache.lucene.monitor.MonitorQuery;
import org.apache.lucene.monitor.MultiMatchingQueries;
import org.apache.lucene.monitor.Presearcher;
import org.apache.lucene.monitor.QueryMatch;
import org.apache.lucene.monitor.TermFilteredPresearcher;
import org.apache.lucene.search.BooleanClause;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.Query;
import org.apache.lucene.search.TermQuery;

/**
 * Elements through N queries of Lucene's Monitor (the percolator); the numbers of what matches are kept.
 *
 * <p>As its documentation advises: an equality is a term, of which the presearcher has an index, so that
 * only queries that can match run; ranges are of points, which no presearcher can choose by, so all of
 * them run. Documents are matched in batches, and the size of a batch is the fastest of 1, 16, 256 and
 * 4,096, tried on the elements that are not measured. Matches are simple ones, without scores. Two
 * threads match, each its own batches.
 *
 * <p>java LuceneMatching ranges|equalities ELEMENTS CONSTANTS
 */
public final class LuceneMatching {
    private static final int[] SIZES = {1, 16, 256, 4096};

    private final Workload work;
    private final Monitor monitor;
    private final Workload.Numbers[][] kept;

    private LuceneMatching(Workload work, Monitor monitor) {
        this.work = work;
        this.monitor = monitor;
        kept = new Workload.Numbers[2][work.queries()];
        for (int thread = 0; thread < 2; thread++) {
            for (int query = 0; query < work.queries(); query++) {
                kept[thread][query] = new Workload.Numbers();
            }
        }
    }

    private Query query(int number) {
        if (!work.areRanges) {
            return new TermQuery(new Term("a", Integer.toString(work.constants[number])));
        }
        BooleanQuery.Builder together = new BooleanQuery.Builder();
        for (int column = 0; column < work.columns; column++) {
            int at = (number * work.columns + column) * 2;
            Query one = IntPoint.newRangeQuery(
                    Workload.NAMES[column], work.constants[at], work.constants[at + 1]);
            together.add(one, BooleanClause.Occur.FILTER);
        }
        return together.build();
    }

    private Document document(int number) {
        Document document = new Document();
        int at = number * work.columns;
        if (!work.areRanges) {
            document.add(new StringField("a", Integer.toString(work.elements[at]), Field.Store.NO));
            return document;
        }
        for (int column = 0; column < work.columns; column++) {
            document.add(new IntPoint(Workload.NAMES[column], work.elements[at + column]));
        }
        return document;
    }

    private void send(int first, int end, int thread, int size) throws Exception {
        for (int low = first; low < end; low += size) {
            Document[] batch = new Document[Math.min(size, end - low)];
            for (int i = 0; i < batch.length; i++) {
                batch[i] = document(low + i);
            }
            if (size == 1) {
                keep(monitor.match(batch[0], QueryMatch.SIMPLE_MATCHER), low, thread);
                continue;
            }
            MultiMatchingQueries<QueryMatch> found = monitor.match(batch, QueryMatch.SIMPLE_MATCHER);
            for (int i = 0; i < batch.length; i++) {
                for (QueryMatch match : found.getMatches(i)) {
                    kept[thread][Integer.parseInt(match.getQueryId())].add(low + i);
                }
            }
        }
    }

    private void keep(MatchingQueries<QueryMatch> found, int number, int thread) {
        for (QueryMatch match : found.getMatches()) {
            kept[thread][Integer.parseInt(match.getQueryId())].add(number);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Workload work = new Workload(arguments[0], arguments[1], arguments[2]);
        Presearcher presearcher = work.areRanges ? Presearcher.NO_FILTERING : new TermFilteredPresearcher();
        MonitorConfiguration settings = new MonitorConfiguration();
        settings.setQueryUpdateBufferSize(10_000);
        Monitor monitor = new Monitor(new KeywordAnalyzer(), presearcher, settings);
        LuceneMatching matching = new LuceneMatching(work, monitor);
        long begun = System.nanoTime();
        List<MonitorQuery> queries = new ArrayList<>();
        for (int number = 0; number < work.queries(); number++) {
            queries.add(new MonitorQuery(Integer.toString(number), matching.query(number)));
        }
        monitor.register(queries);
        double registered = (System.nanoTime() - begun) / 1e9;

        int half = work.rows() / 2;
        int part = half / SIZES.length;
        int best = 1;
        double least = Double.MAX_VALUE;
        for (int i = 0; i < SIZES.length; i++) {
            int size = SIZES[i];
            int end = i + 1 == SIZES.length ? half : (i + 1) * part;
            int from = i * part;
            int middle = from + (end - from) / 3;
            Workload.inTwoThreads(from, middle, (low, high, thread) -> matching.send(low, high, thread, size));
            double took = Workload.inTwoThreads(
                            middle, end, (low, high, thread) -> matching.send(low, high, thread, size))
                    .processor();
            if (took / (end - middle) < least) {
                least = took / (end - middle);
                best = size;
            }
        }
        int size = best;
        Workload.Took took = Workload.inTwoThreads(
                half, work.rows(), (low, high, thread) -> matching.send(low, high, thread, size));
        long matches = 0;
        long sum = 0;
        for (Workload.Numbers[] ofThread : matching.kept) {
            for (Workload.Numbers numbers : ofThread) {
                matches += numbers.count();
                sum += numbers.sum();
            }
        }
        System.err.println("batches of " + size);
        Workload.report(registered, took, work.rows() - half, matches, sum);
        System.exit(0);
    }
}
