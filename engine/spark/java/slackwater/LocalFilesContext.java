package slackwater;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FsConstants;

/** {@link LocalFiles.Raw} for Hadoop's FileContext, by which Spark writes its checkpoints. */
public final class LocalFilesContext extends DelegateToFileSystem {
  public LocalFilesContext(URI uri, Configuration configuration) throws IOException, URISyntaxException {
    super(FsConstants.LOCAL_FS_URI, new LocalFiles.Raw(), configuration, "file", false);
  }
}
