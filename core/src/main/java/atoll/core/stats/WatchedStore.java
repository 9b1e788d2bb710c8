package atoll.core.stats;

import static java.util.Map.entry;

import atoll.core.event.Event;
import atoll.core.stats.Changes.Topic;
import atoll.core.store.Store;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * A store whose writes are counted as changes once they can be read. Everything that lasts goes through the store, so nothing has to
 * remember to tell. By reflection, since most of the store's many methods need nothing but to be passed on.
 */
public final class WatchedStore {
    private static final Map<String, Topic> TOPICS = Map.ofEntries(
            entry("insertSandbox", Topic.SANDBOXES),
            entry("updateSandbox", Topic.SANDBOXES),
            entry("updateSandboxLater", Topic.SANDBOXES),
            entry("reviseSandbox", Topic.SANDBOXES),
            entry("insertContextLater", Topic.SANDBOXES),
            entry("closeContextLater", Topic.SANDBOXES),
            entry("saveExecutionLater", Topic.EXECUTIONS),
            entry("saveProcessLater", Topic.PROCESSES),
            entry("removeProcessLater", Topic.PROCESSES),
            entry("insertSnapshot", Topic.SNAPSHOTS),
            entry("updateSnapshot", Topic.SNAPSHOTS),
            entry("removeSnapshot", Topic.SNAPSHOTS),
            entry("saveTemplate", Topic.TEMPLATES),
            entry("removeTemplate", Topic.TEMPLATES),
            entry("saveDefaultTemplate", Topic.TEMPLATES),
            entry("saveBuild", Topic.TEMPLATES),
            entry("insertKey", Topic.KEYS),
            entry("removeKey", Topic.KEYS));

    private WatchedStore() {}

    public static Store of(Store store, ChangeCounter changes) {
        return (Store) Proxy.newProxyInstance(
                Store.class.getClassLoader(),
                new Class<?>[] {Store.class},
                (_, method, arguments) -> pass(store, changes, method, arguments));
    }

    private static @Nullable Object pass(
            Store store, ChangeCounter changes, Method method, @Nullable Object @Nullable [] arguments)
            throws Throwable {
        Object result;
        try {
            result = method.invoke(store, arguments);
        } catch (InvocationTargetException e) {
            throw e.getCause() == null ? e : e.getCause();
        }
        Topic topic = TOPICS.get(method.getName());
        if (topic != null) {
            changes.changed(topic);
        } else if (method.getName().equals("appendEventLater") && arguments != null) {
            // It comes when what happened holds in memory too.
            boolean snapshot =
                    arguments[0] instanceof Event event && event.kind().startsWith("snapshot.");
            changes.changed(snapshot ? Topic.SNAPSHOTS : Topic.SANDBOXES);
        }
        return result;
    }
}
