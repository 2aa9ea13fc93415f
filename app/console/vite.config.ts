import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

// `SLACKWATER_URL` is the service that `npm run dev` passes requests on to.
const service = process.env.SLACKWATER_URL ?? "http://127.0.0.1:8080";

export default defineConfig({
  base: "/console/",
  resolve: { alias: { "~": fileURLToPath(new URL("./src", import.meta.url)) } },
  build: {
    outDir: "built",
    emptyOutDir: true,
    target: "es2022",
    cssTarget: ["chrome123", "firefox120", "safari17.5"], // those with light-dark(), of which the colours are made
    modulePreload: { polyfill: false }, // an inline script, which the Content-Security-Policy refuses
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    chunkSizeWarningLimit: 800,
  },
  server: {
    // The service refuses requests that pages of other origins send: the proxy speaks in the name of the service.
    proxy: { "^/(v1|docs|openapi.json|metrics|healthz|readyz)": { target: service, changeOrigin: true, headers: { origin: service } } },
  },
});
