// Bundles the console into the folder that is shipped: node build.mjs [FOLDER].
import { cpSync, mkdirSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const out = process.argv[2] ?? here("../src/millpond/console/static");

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
await build({
  absWorkingDir: here("."),
  entryPoints: { main: "src/main.tsx", docs: "src/docs/main.tsx", layout: "src/layout.ts", console: "src/console.css" },
  outdir: out,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  jsx: "automatic",
  jsxImportSource: "preact",
});
cpSync(here("static"), out, { recursive: true });
