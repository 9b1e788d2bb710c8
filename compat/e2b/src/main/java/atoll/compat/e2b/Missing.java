package atoll.compat.e2b;

import atoll.core.AtollException;
import atoll.core.ErrorCode;

/** What is not there, in the words that the SDKs' users know. */
final class Missing {
    private Missing() {}

    static AtollException sandbox(String id) {
        return new AtollException(ErrorCode.SANDBOX_NOT_FOUND, "Sandbox " + id + " not found", "", "");
    }
}
