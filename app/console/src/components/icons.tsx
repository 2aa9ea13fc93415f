/** Small pictures, drawn with the text's own colour. They say nothing that the text beside them does not say: screen readers skip them. */
const PATHS = {
  overview: "M3 3h7v7H3zM14 3h7v7h-7zM14 14h7v7h-7zM3 14h7v7H3z",
  query: "M4 12c3 0 3-4 6-4s3 8 6 8 3-4 4-4",
  stream: "M3 7c3 0 3 2.5 6 2.5S12 7 15 7s3 2.5 6 2.5M3 15c3 0 3 2.5 6 2.5s3-2.5 6-2.5 3 2.5 6 2.5",
  table: "M3 5h18v14H3zM3 10h18M9 5v14",
  sql: "M4 6l5 6-5 6M12 18h8",
  add: "M12 5v14M5 12h14",
  system: "M4 5h16v6H4zM4 13h16v6H4zM7.5 8h.01M7.5 16h.01",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM16 16l4.5 4.5",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6L19 19M5 19l1.4-1.4M17.6 6.4L19 5",
  moon: "M20 14.5A8 8 0 0 1 9.5 4a8 8 0 1 0 10.5 10.5z",
  auto: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 3v18",
  leave: "M10 4H5v16h5M14 8l4 4-4 4M18 12H9",
  warning: "M12 4l9 16H3zM12 10v4M12 17h.01",
  error: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 8v5M12 16h.01",
  good: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM8 12l3 3 5-6",
  info: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 11v5M12 8h.01",
  pause: "M8 5v14M16 5v14",
  play: "M7 5l12 7-12 7z",
  restart: "M4 12a8 8 0 1 0 2.5-5.8M4 4v4h4",
  fork: "M6 4v6a4 4 0 0 0 4 4h8M6 14v6M15 11l3 3-3 3",
  trash: "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13",
  copy: "M8 8h12v12H8zM16 8V4H4v12h4",
  close: "M6 6l12 12M18 6L6 18",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  chevron: "M9 6l6 6-6 6",
  docs: "M5 4h9l5 5v11H5zM14 4v5h5",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}

export function Waves({ size = 24 }: { size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="7" fill="var(--accent)" />
      <path d="M5 13c3.7 0 3.7 3 7.3 3s3.7-3 7.4-3 3.6 3 7.3 3" fill="none" stroke="var(--accent-text)" stroke-width="2.5" stroke-linecap="round" />
      <path d="M5 20c3.7 0 3.7 3 7.3 3s3.7-3 7.4-3 3.6 3 7.3 3" fill="none" stroke="var(--accent-text)" stroke-opacity=".55" stroke-width="2.5" stroke-linecap="round" />
    </svg>
  );
}
