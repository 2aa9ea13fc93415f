package slackwater;

import java.io.IOException;
import java.net.ProtocolFamily;
import java.nio.channels.Channel;
import java.nio.channels.DatagramChannel;
import java.nio.channels.Pipe;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.channels.spi.AbstractSelector;
import java.nio.channels.spi.SelectorProvider;
import java.util.ArrayDeque;
import java.util.Queue;

/**
 * The system's selectors, of which one kind is remembered: to wait until a Python worker calls back Spark opens one that it never closes,
 * and with it the worker's port stays open.
 */
public final class Selectors extends SelectorProvider {
  private static final String OPENER = "createSimpleWorker";

  private static final Queue<Left> LEFT = new ArrayDeque<>();

  private final SelectorProvider system;

  private record Left(Selector selector, long since) {}

  public Selectors() throws ReflectiveOperationException {
    // Spark's launcher opens this package.
    system = (SelectorProvider) Class.forName("sun.nio.ch.DefaultSelectorProvider").getMethod("get").invoke(null);
  }

  /** Closes those that were opened longer ago. */
  static void closeLeft(long ageNs) throws IOException {
    synchronized (LEFT) {
      while (!LEFT.isEmpty() && System.nanoTime() - LEFT.peek().since() >= ageNs) {
        LEFT.remove().selector().close();
      }
    }
  }

  @Override
  public AbstractSelector openSelector() throws IOException {
    AbstractSelector selector = system.openSelector();
    if (isForOneWorker()) {
      synchronized (LEFT) {
        LEFT.add(new Left(selector, System.nanoTime()));
      }
    }
    return selector;
  }

  /** Whether whoever called Selector.open is the one that forgets it; what that one calls closes its own. */
  private static boolean isForOneWorker() {
    return StackWalker.getInstance()
        .walk(
            frames ->
                frames
                    .dropWhile(frame -> !frame.getMethodName().equals("open"))
                    .skip(1)
                    .findFirst()
                    .map(frame -> frame.getMethodName().equals(OPENER))
                    .orElse(false));
  }

  @Override
  public DatagramChannel openDatagramChannel() throws IOException {
    return system.openDatagramChannel();
  }

  @Override
  public DatagramChannel openDatagramChannel(ProtocolFamily family) throws IOException {
    return system.openDatagramChannel(family);
  }

  @Override
  public Pipe openPipe() throws IOException {
    return system.openPipe();
  }

  @Override
  public ServerSocketChannel openServerSocketChannel() throws IOException {
    return system.openServerSocketChannel();
  }

  @Override
  public ServerSocketChannel openServerSocketChannel(ProtocolFamily family) throws IOException {
    return system.openServerSocketChannel(family);
  }

  @Override
  public SocketChannel openSocketChannel() throws IOException {
    return system.openSocketChannel();
  }

  @Override
  public SocketChannel openSocketChannel(ProtocolFamily family) throws IOException {
    return system.openSocketChannel(family);
  }

  @Override
  public Channel inheritedChannel() throws IOException {
    return system.inheritedChannel();
  }
}
