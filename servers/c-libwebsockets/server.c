/* libwebsockets with its own event loop. Environment: HOST, PORT; one thread (as Debian builds the library), THREADS is ignored. */

#include <libwebsockets.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LARGEST_MESSAGE = 16 << 20, HOURS = 2 * 3600 };

enum endpoint { NONE, ECHO, PING, PUSH, DOC };

/* A message on its way out. The library wants LWS_PRE free bytes before the payload. */
struct message {
    struct message *next;
    enum lws_write_protocol kind;
    size_t length;
    unsigned char room[];
};

/* What the library keeps for each connection; zeroed by it. */
struct connection {
    struct lws *wsi;
    lws_dll2_t membership;
    enum endpoint endpoint;
    struct message *coming_in;
    struct message *first, **last;
    size_t document;
};

static lws_dll2_owner_t members;

static void *allocate(void *old, size_t payload)
{
    void *new = realloc(old, sizeof(struct message) + LWS_PRE + payload);
    if (!new) abort();
    return new;
}

/* The library lets a connection write once each time it says that the connection is writable. */
static void queue(struct connection *connection, struct message *message)
{
    message->next = NULL;
    *(connection->first ? connection->last : &connection->first) = message;
    connection->last = &message->next;
    lws_callback_on_writable(connection->wsi);
}

static void queue_text(struct connection *connection, const void *text, size_t length)
{
    struct message *message = allocate(NULL, length);
    message->kind = LWS_WRITE_TEXT;
    message->length = length;
    memcpy(message->room + LWS_PRE, text, length);
    queue(connection, message);
}

static void received(struct connection *connection, struct message *message)
{
    static const char command[] = "broadcast ";
    const size_t command_length = sizeof command - 1;
    const char *text = (const char *)message->room + LWS_PRE;
    bool is_text = message->kind == LWS_WRITE_TEXT;
    if (connection->endpoint == ECHO) {
        queue(connection, message);
        return;
    }
    if (connection->endpoint == PING && is_text && message->length == 4 && !memcmp(text, "Ping", 4))
        queue_text(connection, "Pong", 4);
    if (connection->endpoint == PUSH && is_text && message->length >= command_length && !memcmp(text, command, command_length))
        lws_start_foreach_dll(lws_dll2_t *, member, lws_dll2_get_head(&members))
            queue_text(lws_container_of(member, struct connection, membership), text + command_length, message->length - command_length);
        lws_end_foreach_dll(member);
    free(message);
}

/* A piece of a message: the library hands out what it has read. */
static int receive(struct connection *connection, const void *piece, size_t length)
{
    struct message *message = connection->coming_in;
    size_t before = message ? message->length : 0;
    size_t known = before + length + lws_remaining_packet_payload(connection->wsi);
    if (known > LARGEST_MESSAGE) {
        lws_close_reason(connection->wsi, LWS_CLOSE_STATUS_MESSAGE_TOO_LARGE, NULL, 0);
        return -1;
    }
    connection->coming_in = allocate(message, known);
    if (!message) connection->coming_in->kind = lws_frame_is_binary(connection->wsi) ? LWS_WRITE_BINARY : LWS_WRITE_TEXT;
    message = connection->coming_in;
    memcpy(message->room + LWS_PRE + before, piece, length);
    message->length = before + length;
    if (!lws_is_final_fragment(connection->wsi)) return 0;
    connection->coming_in = NULL;
    received(connection, message);
    return 0;
}

static int writable(struct connection *connection)
{
    struct message *message = connection->first;
    if (!message) return 0;
    connection->first = message->next;
    if (connection->endpoint == PUSH) {
        struct timespec now;
        char micros[32];
        clock_gettime(CLOCK_REALTIME, &now);
        size_t length = (size_t)snprintf(micros, sizeof micros, "%lld ", now.tv_sec * 1000000LL + now.tv_nsec / 1000);
        message = allocate(message, message->length + length);
        memmove(message->room + LWS_PRE + length, message->room + LWS_PRE, message->length);
        memcpy(message->room + LWS_PRE, micros, length);
        message->length += length;
    }
    int written = lws_write(connection->wsi, message->room + LWS_PRE, message->length, message->kind);
    free(message);
    if (connection->first) lws_callback_on_writable(connection->wsi);
    return written < 0 ? -1 : 0;
}

static int established(struct connection *connection, struct lws *wsi)
{
    char path[16] = "";
    lws_hdr_copy(wsi, path, sizeof path, WSI_TOKEN_GET_URI);
    connection->wsi = wsi;
    connection->endpoint = !strcmp(path, "/echo") ? ECHO : !strcmp(path, "/ping") ? PING : !strcmp(path, "/push") ? PUSH : NONE;
    if (connection->endpoint == PUSH) lws_dll2_add_tail(&connection->membership, &members);
    return connection->endpoint == NONE ? -1 : 0;
}

static void closed(struct connection *connection)
{
    lws_dll2_remove(&connection->membership);
    free(connection->coming_in);
    while (connection->first) {
        struct message *message = connection->first;
        connection->first = message->next;
        free(message);
    }
}

static int doc_head(struct connection *connection, struct lws *wsi, const char *path)
{
    unsigned char head[LWS_PRE + 1024], *start = head + LWS_PRE, *end = head + sizeof head, *p = start;
    char argument[32], *rest = argument;
    const char *size = strcmp(path, "/doc") ? NULL : lws_get_urlarg_by_name(wsi, "size=", argument, sizeof argument);
    if (size) connection->document = strtoul(size, &rest, 10);
    if (!size || rest == size || *rest) {
        if (lws_return_http_status(wsi, size ? HTTP_STATUS_BAD_REQUEST : HTTP_STATUS_NOT_FOUND, NULL)) return -1;
        return lws_http_transaction_completed(wsi) ? -1 : 0;
    }
    if (lws_add_http_common_headers(wsi, HTTP_STATUS_OK, "text/html", connection->document, &p, end)) return -1;
    if (lws_finalize_write_http_header(wsi, start, &p, end)) return -1;
    lws_callback_on_writable(wsi);
    return 0;
}

static int doc_body(struct connection *connection, struct lws *wsi)
{
    struct message *body = allocate(NULL, connection->document);
    memset(body->room + LWS_PRE, '.', connection->document);
    int written = lws_write(wsi, body->room + LWS_PRE, connection->document, LWS_WRITE_HTTP_FINAL);
    free(body);
    return written < 0 || lws_http_transaction_completed(wsi) ? -1 : 0;
}

static int callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in, size_t length)
{
    switch ((int)reason) {
    case LWS_CALLBACK_ESTABLISHED: return established(user, wsi);
    case LWS_CALLBACK_RECEIVE: return receive(user, in, length);
    case LWS_CALLBACK_SERVER_WRITEABLE: return writable(user);
    case LWS_CALLBACK_CLOSED: closed(user); return 0;
    case LWS_CALLBACK_HTTP: return doc_head(user, wsi, in);
    case LWS_CALLBACK_HTTP_WRITEABLE: return doc_body(user, wsi);
    default: return lws_callback_http_dummy(wsi, reason, user, in, length);
    }
}

int main(int count, char **arguments)
{
    if (count == 2 && !strcmp(arguments[1], "--version")) {
        printf("libwebsockets %s, gcc %s\n", lws_get_library_version(), __VERSION__);
        return 0;
    }
    lws_set_log_level(LLL_ERR | LLL_WARN, NULL);
    static const struct lws_protocols protocols[] = {
        { "all", callback, sizeof(struct connection), 0, 0, NULL, 0 },
        { NULL, NULL, 0, 0, 0, NULL, 0 },
    };
    static const lws_retry_bo_t idle = { .secs_since_valid_ping = HOURS, .secs_since_valid_hangup = HOURS + 10 };
    struct lws_context_creation_info info = {
        .iface = getenv("HOST"),
        .port = atoi(getenv("PORT")),
        .protocols = protocols,
        .options = LWS_SERVER_OPTION_DISABLE_IPV6,
        .keepalive_timeout = HOURS,
        .retry_and_idle_policy = &idle,
        .gid = -1,
        .uid = -1,
    };
    struct lws_context *context = lws_create_context(&info);
    while (context && lws_service(context, 0) >= 0) continue;
    return 1;
}
