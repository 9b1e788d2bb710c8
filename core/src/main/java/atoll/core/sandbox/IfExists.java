package atoll.core.sandbox;

/** What a create does when a live sandbox has the name already. */
public enum IfExists {
    /** It is refused. */
    FAIL,
    /** It returns that one as it is, whatever state it is in; of several such calls at once one makes it and all get it. */
    GET
}
