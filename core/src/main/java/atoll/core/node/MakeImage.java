package atoll.core.node;

/**
 * An image to make.
 *
 * @param name what it is made for; shown in lists, not unique
 */
public record MakeImage(String name, ImageSource source) {}
