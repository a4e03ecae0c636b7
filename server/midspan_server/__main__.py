from __future__ import annotations

from midspan_server.cli import main

raise SystemExit(main())
