package atoll.core.testing;

import atoll.core.AtollException;
import atoll.core.ErrorCode;
import atoll.core.node.Node;
import atoll.core.node.NodeProcesses;
import atoll.core.store.Store;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * Stands between one life of a server and its store and node. It counts the calls that one thread makes, each as two points, before and
 * after it, and steps in at one of them. Once it has died every call fails: whatever its server does then changes nothing any more, as
 * after kill -9.
 */
public final class Interposer {
    /** They say nothing of the world. */
    private static final Set<String> UNCOUNTED = Set.of("processes", "close", "toString", "hashCode", "equals");

    private final Store store;
    private final Node node;
    private volatile boolean dead;
    private volatile @Nullable Armed armed;

    /** What is to happen where. */
    private static final class Armed {
        final Thread thread = Thread.currentThread();
        final int point;
        final Runnable action;
        int passed;
        boolean reached;

        Armed(int point, Runnable action) {
            this.point = point;
            this.action = action;
        }

        void pass() {
            int now = passed++;
            if (now == point) {
                reached = true;
                action.run();
            }
        }
    }

    public Interposer(Store store, Node node) {
        this.store = proxy(Store.class, store);
        this.node = proxy(Node.class, node);
    }

    public Store store() {
        return store;
    }

    public Node node() {
        return node;
    }

    /** Has the action happen at this point, from 0, of what the calling thread does from now on. */
    public void arm(int point, Runnable action) {
        armed = new Armed(point, action);
    }

    /** Whether the point was reached; from now on nothing happens. To be called by the thread that armed it. */
    public boolean disarm() {
        Armed was = armed;
        armed = null;
        return was != null && was.reached;
    }

    public void die() {
        dead = true;
    }

    private <T> T proxy(Class<T> type, T real) {
        InvocationHandler handler = (_, method, arguments) -> call(real, method, arguments);
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, handler));
    }

    private @Nullable Object call(Object real, Method method, Object @Nullable [] arguments) throws Throwable {
        if (UNCOUNTED.contains(method.getName())) {
            Object answer = invoke(real, method, arguments);
            return answer instanceof NodeProcesses processes ? proxy(NodeProcesses.class, processes) : answer;
        }
        point();
        checkAlive();
        Object answer = invoke(real, method, arguments);
        point();
        checkAlive();
        return answer;
    }

    private void point() {
        Armed now = armed;
        if (now != null && now.thread == Thread.currentThread()) {
            now.pass();
        }
    }

    private void checkAlive() {
        if (dead) {
            throw new AtollException(ErrorCode.SHUTTING_DOWN, "this server is dead", "", "");
        }
    }

    private static @Nullable Object invoke(Object real, Method method, Object @Nullable [] arguments) throws Throwable {
        try {
            return method.invoke(real, arguments);
        } catch (InvocationTargetException e) {
            throw e.getCause() == null ? e : e.getCause();
        }
    }
}
