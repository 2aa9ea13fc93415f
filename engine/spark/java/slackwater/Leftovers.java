package slackwater;

import java.io.IOException;
import java.lang.reflect.Field;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import py4j.ClientServerConnection;
import py4j.PythonClient;

/**
 * Lets go of what Spark and Py4J keep of a launch that has ended for as long as the process lives: per launch two threads that wait for
 * nothing, six handles, and a connection to the driver's Python with a thread of its own there.
 */
public final class Leftovers {
  private static final String MONITOR = "org.apache.spark.api.python.PythonWorkerFactory$MonitorThread";

  private static final Map<Thread, Callback> CALLBACKS = new HashMap<>();

  private Leftovers() {}

  private record Callback(PythonClient client, ClientServerConnection connection) {}

  /**
   * Remembers the connection by which this thread calls Python back; Py4J keeps it when the thread has ended. Returns what kept it from
   * that, null for nothing.
   */
  public static String callsBack(Object client) {
    try {
      if (client instanceof PythonClient pinned) {
        synchronized (CALLBACKS) {
          CALLBACKS.put(Thread.currentThread(), new Callback(pinned, pinned.getPerThreadConnection()));
        }
      }
      return null;
    } catch (LinkageError error) {
      return error.toString();
    }
  }

  /**
   * Lets go of everything that nobody uses any more: selectors so many seconds after they were opened, the rest as soon as it is over.
   * Returns what kept it from that, null for nothing.
   */
  public static String sweep(int seconds) {
    try {
      closeCallbacks();
      Selectors.closeLeft(TimeUnit.SECONDS.toNanos(seconds));
      endMonitors();
      return null;
    } catch (IOException | ReflectiveOperationException | RuntimeException | LinkageError error) {
      return error.toString();
    }
  }

  private static void closeCallbacks() {
    synchronized (CALLBACKS) {
      for (Thread thread : List.copyOf(CALLBACKS.keySet())) {
        if (!thread.isAlive()) {
          Callback callback = CALLBACKS.remove(thread);
          callback.client().connectionStopped(callback.connection());
          callback.connection().shutdown();
        }
      }
    }
  }

  /** Ends the threads that look for idle workers of factories which never have any: those that make one worker without a daemon. */
  private static void endMonitors() throws ReflectiveOperationException {
    for (Thread thread : threads()) {
      if (thread != null && thread.getClass().getName().equals(MONITOR)) {
        Object factory = field(thread, "$outer");
        if (!(boolean) field(factory, "useDaemon")) {
          thread.setUncaughtExceptionHandler((ended, interruption) -> {});
          thread.interrupt();
        }
      }
    }
  }

  private static Thread[] threads() {
    ThreadGroup root = Thread.currentThread().getThreadGroup();
    while (root.getParent() != null) {
      root = root.getParent();
    }
    Thread[] found = new Thread[root.activeCount() + 64];
    root.enumerate(found);
    return found;
  }

  private static Object field(Object owner, String name) throws ReflectiveOperationException {
    Field field = owner.getClass().getDeclaredField(name);
    field.setAccessible(true);
    return field.get(owner);
  }
}
