package atoll.core.template;

import atoll.core.Caller;
import java.util.List;

/** The templates a caller can use. */
public interface Templates {
    /** The default one first. */
    List<Template> list(Caller caller);

    Template get(Caller caller, String id);
}
