/** What a sandbox is made from. */
@NullMarked
package atoll.core.template;

import org.jspecify.annotations.NullMarked;
