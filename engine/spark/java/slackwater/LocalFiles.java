package slackwater;

import java.io.FilterOutputStream;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.StandardOpenOption;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * Local file system for checkpoints. Where Hadoop's native library is absent (always, with the pip package) its own class starts a
 * chmod process for every file; this one leaves permissions to the umask. It also syncs what it closes and where it renames: a
 * checkpoint that a power cut rolls back behind what the sink has committed would make the next batch look committed already.
 */
public final class LocalFiles extends LocalFileSystem {
  /** The file system without checksum files. */
  public static final class Raw extends RawLocalFileSystem {
    @Override
    public void setPermission(Path path, FsPermission permission) {}

    @Override
    public void setOwner(Path path, String user, String group) {}

    @Override
    public boolean supportsSymlinks() {
      return false;
    }

    @Override
    public FileStatus getFileLinkStatus(Path path) throws IOException {
      return getFileStatus(path);
    }

    @Override
    public FSDataOutputStream create(
        Path path, boolean overwrite, int buffer, short replication, long block, Progressable progress) throws IOException {
      return synced(super.create(path, overwrite, buffer, replication, block, progress));
    }

    @Override
    public FSDataOutputStream createNonRecursive(
        Path path, FsPermission permission, boolean overwrite, int buffer, short replication, long block, Progressable progress)
        throws IOException {
      return synced(super.createNonRecursive(path, permission, overwrite, buffer, replication, block, progress));
    }

    @Override
    public boolean rename(Path from, Path to) throws IOException {
      boolean isDone = super.rename(from, to);
      if (isDone) {
        try (FileChannel folder = FileChannel.open(pathToFile(to).getParentFile().toPath(), StandardOpenOption.READ)) {
          folder.force(true);
        }
      }
      return isDone;
    }

    private static FSDataOutputStream synced(FSDataOutputStream plain) throws IOException {
      return new FSDataOutputStream(new Synced(plain), null);
    }
  }

  private static final class Synced extends FilterOutputStream {
    private boolean closed;

    Synced(FSDataOutputStream plain) {
      super(plain);
    }

    @Override
    public void write(byte[] bytes, int from, int count) throws IOException {
      out.write(bytes, from, count);
    }

    @Override
    public void close() throws IOException {
      if (!closed) {
        closed = true;
        try (FSDataOutputStream plain = (FSDataOutputStream) out) {
          plain.hsync();
        }
      }
    }
  }

  public LocalFiles() {
    super(new Raw());
  }
}
