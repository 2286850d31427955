/** Takes numbers that never repeat from Odometer. */
module odometer.client {
    requires java.net.http;

    exports odometer.client;
}
