package sun.misc;

import java.util.Base64;

/** What spray-websocket asks of the JDK at every handshake, and the JDK has no longer had since Java 9. */
public class BASE64Encoder {
    public String encode(byte[] bytes) {
        return Base64.getEncoder().encodeToString(bytes);
    }
}
