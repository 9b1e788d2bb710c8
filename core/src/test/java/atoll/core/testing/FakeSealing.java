package atoll.core.testing;

import atoll.core.template.Sealing;
import java.nio.charset.StandardCharsets;
import java.util.Base64;

/** Unreadable at a glance, and no more. */
public final class FakeSealing implements Sealing {
    @Override
    public String seal(String secret) {
        return "sealed:" + Base64.getEncoder().encodeToString(secret.getBytes(StandardCharsets.UTF_8));
    }

    @Override
    public String unseal(String sealed) {
        if (!sealed.startsWith("sealed:")) {
            throw new IllegalArgumentException("it was sealed elsewhere");
        }
        return new String(Base64.getDecoder().decode(sealed.substring("sealed:".length())), StandardCharsets.UTF_8);
    }
}
