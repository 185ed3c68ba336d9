// Docstrings as the document has them: paragraphs, and code between backquotes.

export function Words({ text }: { text: string }) {
  return <>{text.split(/\n\s*\n/).map((paragraph) => <p class="words">{paragraph.split(/`([^`]+)`/).map((part, i) => (i % 2 ? <code>{part}</code> : part))}</p>)}</>;
}
