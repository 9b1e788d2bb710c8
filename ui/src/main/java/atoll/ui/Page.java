package atoll.ui;

/** A page with its actions and live regions. */
public interface Page {
    void addTo(Site site);
}
