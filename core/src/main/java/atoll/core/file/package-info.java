/** Files inside a sandbox. Paths are the guest's: nothing here resolves one, only the agent inside does, with the rights of the user named. */
@NullMarked
package atoll.core.file;

import org.jspecify.annotations.NullMarked;
