import com.espertech.esper.common.client.EPCompiled;
import com.espertech.esper.common.client.EventBean;
import com.espertech.esper.common.client.EventSender;
import com.espertech.esper.common.client.configuration.Configuration;
import com.espertech.esper.compiler.client.CompilerArguments;
import com.espertech.esper.compiler.client.EPCompilerProvider;
import com.espertech.esper.runtime.client.DeploymentOptions;
import com.espertech.esper.runtime.client.EPRuntime;
import com.espertech.esper.runtime.client.EPRuntimeProvider;
import com.espertech.esper.runtime.client.EPStatement;
import com.espertech.esper.runtime.client.UpdateListener;

/**
 * Elements through N statements of Esper, whose listeners keep the numbers of what matches.
 *
 * <p>As the documentation's chapter on performance advises: the conditions are in the stream's filter,
 * where Esper has an index over statements; one text with parameters is compiled once and deployed N
 * times; statements select the event itself; events are objects of a class, given to an event sender;
 * `@NoLock`, since the statements have no state; the timer, the guarantees of order and the statistics are
 * off. Two threads send, as the machine has two processors; a listener has a list for each, so nothing
 * waits for a lock of ours.
 *
 * <p>java EsperMatching ranges|equalities ELEMENTS CONSTANTS
 */
public final class EsperMatching {
    public static final class E {
        private final int number;
        private final int thread;
        private final int a;
        private final int b;
        private final int c;
        private final int d;
        private final int e;

        E(int number, int thread, int[] from, int at, int columns) {
            this.number = number;
            this.thread = thread;
            a = from[at];
            b = columns > 1 ? from[at + 1] : 0;
            c = columns > 1 ? from[at + 2] : 0;
            d = columns > 1 ? from[at + 3] : 0;
            e = columns > 1 ? from[at + 4] : 0;
        }

        public int getA() {
            return a;
        }

        public int getB() {
            return b;
        }

        public int getC() {
            return c;
        }

        public int getD() {
            return d;
        }

        public int getE() {
            return e;
        }
    }

    static final class Keeper {
        final Workload.Numbers[] kept = {new Workload.Numbers(), new Workload.Numbers()};

        void update(EventBean[] events) {
            for (EventBean event : events) {
                E element = (E) event.getUnderlying();
                kept[element.thread].add(element.number);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        Workload work = new Workload(arguments[0], arguments[1], arguments[2]);
        Configuration settings = new Configuration();
        settings.getCommon().addEventType(E.class);
        settings.getRuntime().getThreading().setInternalTimerEnabled(false);
        settings.getRuntime().getThreading().setListenerDispatchPreserveOrder(false);
        settings.getRuntime().getThreading().setInsertIntoDispatchPreserveOrder(false);
        EPRuntime runtime = EPRuntimeProvider.getDefaultRuntime(settings);

        StringBuilder text = new StringBuilder("@NoLock select * from E(");
        for (int column = 0; column < work.columns; column++) {
            String name = Workload.NAMES[column];
            text.append(column == 0 ? "" : " and ");
            text.append(work.areRanges
                    ? name + " between ?:" + name + "0:int and ?:" + name + "1:int"
                    : name + " = ?:" + name + "0:int");
        }
        EPCompiled compiled = EPCompilerProvider.getCompiler().compile(text + ")", new CompilerArguments(settings));
        int each = work.areRanges ? 2 : 1;
        Keeper[] keepers = new Keeper[work.queries()];
        long begun = System.nanoTime();
        for (int query = 0; query < keepers.length; query++) {
            int first = query * each * work.columns;
            DeploymentOptions options = new DeploymentOptions();
            options.setStatementSubstitutionParameter(context -> {
                for (int column = 0; column < work.columns; column++) {
                    for (int end = 0; end < each; end++) {
                        context.setObject(
                                Workload.NAMES[column] + end, work.constants[first + column * each + end]);
                    }
                }
            });
            EPStatement statement =
                    runtime.getDeploymentService().deploy(compiled, options).getStatements()[0];
            Keeper keeper = new Keeper();
            keepers[query] = keeper;
            statement.addListener((added, removed, of, in) -> keeper.update(added));
        }
        double registered = (System.nanoTime() - begun) / 1e9;

        Workload.Sender sender = (first, end, thread) -> {
            EventSender to = runtime.getEventService().getEventSender("E");
            for (int number = first; number < end; number++) {
                to.sendEvent(new E(number, thread, work.elements, number * work.columns, work.columns));
            }
        };
        int half = work.rows() / 2;
        Workload.inTwoThreads(0, half, sender);
        Workload.Took took = Workload.inTwoThreads(half, work.rows(), sender);
        long matches = 0;
        long sum = 0;
        for (Keeper keeper : keepers) {
            for (Workload.Numbers numbers : keeper.kept) {
                matches += numbers.count();
                sum += numbers.sum();
            }
        }
        Workload.report(registered, took, work.rows() - half, matches, sum);
        System.exit(0);
    }
}
